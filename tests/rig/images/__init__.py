"""Test images, built and pushed in pure Python."""

from tests.rig.images.demo import demo_image
from tests.rig.images.layers import Blob, Layer
from tests.rig.images.push import Auth, PushedImage, PushedIndex, push, push_index
from tests.rig.images.recipe import Format, ImageRecipe, Platform

__all__ = [
    "Auth",
    "Blob",
    "Format",
    "ImageRecipe",
    "Layer",
    "Platform",
    "PushedImage",
    "PushedIndex",
    "demo_image",
    "push",
    "push_index",
]
