"""What tests of real coding agents stand on: a scripted model server, and how each client is run against it."""
