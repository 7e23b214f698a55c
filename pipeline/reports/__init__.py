"""What people look at: reports.sqlite, which the daemon serves and draws, and a page of HTML that stands alone."""
