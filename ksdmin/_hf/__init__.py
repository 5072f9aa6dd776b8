"""The Hessian-free method (Martens 2010), on the same problems as Krylov Subspace Descent."""
