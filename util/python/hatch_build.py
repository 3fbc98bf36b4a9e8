"""Gives the wheel the tag of the libraries and programs in it."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class TagHook(BuildHookInterface):
    """Sets the tag that `cargo xtask wheel` has computed."""

    def initialize(self, version, build_data):
        tag = os.environ.get("SELVEDGE_WHEEL_TAG")
        if tag is None:
            raise SystemExit("the package has no libraries yet: run cargo xtask wheel")
        build_data["pure_python"] = False
        build_data["tag"] = tag
