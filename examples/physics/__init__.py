"""Physics-informed nets and high-accuracy fits, by ksdmin's methods and others at equal seconds.

`experiments` has the list of problems, `methods` that of the methods; README.md the commands.
"""
