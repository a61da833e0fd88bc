"""Continue a scan of batch headers after damage."""
