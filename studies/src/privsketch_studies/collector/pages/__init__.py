"""What people see in a browser: pages of studies, made on the server, without any script."""
