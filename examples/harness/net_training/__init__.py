"""Training nets by ksdmin's methods and others, under equal conditions and one clock.

A method gets a `Training` (net, task, data on the device), a `PointRecorder` and its `Settings`,
and returns an `Outcome`: see `method_interface`. `training_methods` has all methods by name.
"""
