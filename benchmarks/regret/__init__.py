"""What "auto" loses against the best of our methods, on data sets seen and unseen."""
