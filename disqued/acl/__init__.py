"""Users and what they may do, as Redis's ACL has them: pure but for the file that keeps them (`aclfile`)."""
