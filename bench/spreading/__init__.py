"""Images on the hosts of a lab: what is read, through which links, and how long it takes."""
