"""The wire and the disk as frozen types: no IO, no logic, no imports from `state` or `daemon`."""
