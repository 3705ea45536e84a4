"""Exceptions, by the exit codes of the command line."""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """Something that posenc-onnx cannot or will not do, as one sentence."""

    exit_code: ClassVar[int] = 1
    """The exit code of the command line for this."""


class CheckFailed(Error):
    """A check found a difference, or the model has no attention to rewrite."""

    exit_code = 1


class UsageError(Error, ValueError):
    """An argument is wrong or has no effect, or a value is missing that cannot be inferred."""

    exit_code = 2


class InvalidModel(Error):
    """The model cannot be read, or breaks a rule of ONNX."""

    exit_code = 3


class NotFound(Error, FileNotFoundError):
    """A file does not exist: the model, one that holds tensors of it, or one that an argument names."""

    exit_code = 3


class Unsupported(Error):
    """The model or the request has a form that is not supported; the message names the place.

    Also raised where something in the model that matters to the request was not read: `allow_unread=True` goes on
    all the same, and the result records that.
    """

    exit_code = 4


class ProviderUnavailable(Error):
    """The requested runtime or execution provider is not available."""

    exit_code = 5
