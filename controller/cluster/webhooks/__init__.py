"""The webhooks that the API server calls on every replica: conversion, and the suspension of Jobs where it cannot do
that itself.

docs/webhooks.md says what runs where and what happens when no replica answers.
"""
