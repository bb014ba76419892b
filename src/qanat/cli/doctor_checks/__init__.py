"""What `qanat doctor` looks at, one file per subject. Nothing here imports torch into this process."""
