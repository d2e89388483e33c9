"""The words everybody uses: devices, attributes, parameters, limits, names, errors. Values and pure functions."""
