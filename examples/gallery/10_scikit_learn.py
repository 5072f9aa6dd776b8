"""
10. An estimator for scikit-learn
=================================

A classifier that fits with KSD, in some fifty lines. It passes scikit-learn's ``check_estimator``
and goes into pipelines, grid searches and cross-validation like scikit-learn's own.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import ksdmin

# sphinx_gallery_thumbnail_number = 1

# %%
# The estimator
# -------------
# Softmax regression with a penalty ``alpha``. ``fit`` writes down the mean loss over the samples
# ``idx``, its gradient and a product with its Hessian, and hands them to :func:`ksdmin.minimize`.


class KSDClassifier(ClassifierMixin, BaseEstimator):
    def __init__(self, alpha=1e-4, tol=1e-5, random_state=0):
        self.alpha = alpha
        self.tol = tol
        self.random_state = random_state

    def fit(self, X, y):
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"there is one class only: {self.classes_}")
        ones = np.c_[X, np.ones(len(X))]
        Y, shape = np.eye(len(self.classes_))[labels], (ones.shape[1], len(self.classes_))
        penalty = np.full(shape, self.alpha)
        penalty[-1] = 0  # the intercepts are free
        penalty = penalty.ravel()

        def scores(w, idx):
            return ones[idx] @ w.reshape(shape)

        def fun(w, idx):
            likelihood = np.sum(Y[idx] * log_softmax(scores(w, idx), axis=1), axis=1)
            return -likelihood.mean() + penalty @ w**2 / 2

        def jac(w, idx):
            P = softmax(scores(w, idx), axis=1)
            return (ones[idx].T @ (P - Y[idx])).ravel() / len(P) + penalty * w

        def hessp(w, p, idx):
            P = softmax(scores(w, idx), axis=1)
            R = P * scores(p, idx)
            R -= P * R.sum(axis=1, keepdims=True)
            return (ones[idx].T @ R).ravel() / len(P) + penalty * p

        self.result_ = ksdmin.minimize(
            fun,
            np.zeros(shape[0] * shape[1]),
            jac=jac,
            hessp=hessp,
            subsets=len(X),
            rng=self.random_state,
            tol=self.tol,
        )
        weights = self.result_.x.reshape(shape)
        self.coef_, self.intercept_, self.n_iter_ = weights[:-1].T, weights[-1], self.result_.nit
        return self

    def predict_proba(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        return softmax(X @ self.coef_.T + self.intercept_, axis=1)

    def predict(self, X):
        shares = self.predict_proba(X)
        return self.classes_[np.argmax(shares, axis=1)]


# %%
# In a pipeline and a grid search
# -------------------------------

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
pipeline = make_pipeline(StandardScaler(), KSDClassifier())
search = GridSearchCV(pipeline, {"ksdclassifier__alpha": np.geomspace(1e-4, 1, 5)}, cv=3)
search.fit(X_train, y_train)
print(f"best alpha {search.best_params_['ksdclassifier__alpha']:g}")
print(f"accuracy on other digits {search.score(X_test, y_test):.3f}")

# %%
# The run itself is kept as ``result_``:

search.best_estimator_[-1].result_

# %%
# What the grid search saw:

table = search.cv_results_
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.errorbar(
    table["param_ksdclassifier__alpha"].astype(float),
    100 * table["mean_test_score"],
    100 * table["std_test_score"],
    marker="o",
    capsize=4,
)
axes.set(
    title="Three-fold cross-validation",
    xlabel="penalty alpha",
    ylabel="digits recognised (%)",
    xscale="log",
)

# %%
# The same minimum as scikit-learn's
# ----------------------------------
# ``LogisticRegression`` minimises ``C * sum of losses + |w|^2 / 2`` by L-BFGS. For this
# model, and data of this size, it is faster. An estimator of your own is for a loss of your own.

inputs = StandardScaler().fit_transform(X_train)
alpha = 1e-3
rivals = {
    "KSDClassifier": KSDClassifier(alpha=alpha, tol=1e-6),
    "LogisticRegression": LogisticRegression(
        C=1 / (alpha * len(inputs)), tol=1e-6, max_iter=100_000
    ),
}
probabilities = []
for name, estimator in rivals.items():
    start = time.perf_counter()
    probabilities.append(estimator.fit(inputs, y_train).predict_proba(inputs))
    print(f"{name:20} {time.perf_counter() - start:.3f} seconds")
print(f"largest difference of a probability: {np.abs(np.subtract(*probabilities)).max():.1e}")

# %%

figure, axes = plt.subplots(figsize=(5.2, 5), layout="constrained")
ConfusionMatrixDisplay.from_estimator(search, X_test, y_test, ax=axes, colorbar=False, cmap="Blues")
axes.set(title="Digits not trained on", xlabel="predicted digit", ylabel="true digit")
plt.show()
