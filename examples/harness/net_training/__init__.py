"""Training nets by ksdmin's methods and others, under equal conditions and one clock."""
