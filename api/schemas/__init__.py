"""What goes over the wire, apart from rows and from the domain."""
