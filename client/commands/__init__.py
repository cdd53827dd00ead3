"""The subcommands of the client: one file each, thin. `common` has their shared options and output."""
