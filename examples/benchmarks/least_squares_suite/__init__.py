"""Problems of nonlinear least squares, and what a solver makes of them."""
