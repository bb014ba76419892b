"""The actions of `qanat bench`, one file each."""
