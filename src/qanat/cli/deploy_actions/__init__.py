"""The actions of `qanat deploy`, one file each."""
