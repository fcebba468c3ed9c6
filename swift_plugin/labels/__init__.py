"""Annotations of who speaks, turned into targets [T, 3].

A reader (`rttm`, `csv_turns`, `easycom`, `egocom`) gives `Turn`s; `coverage` measures them on the grid of 0.2 s steps;
`rule` decides the targets; `store` saves and loads them. `command` is `swift-turn targets`.
"""
