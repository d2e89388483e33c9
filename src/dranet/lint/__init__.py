"""Mistakes in manifests, found before anything is scheduled: one rule a finding, each with its place and fix."""
