"""Small files of figures that other tools leave, a module for each kind: how it is told, read and measured."""
