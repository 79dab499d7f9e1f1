"""The kernel: values every layer speaks in, and the ports between layers.

Only the standard library and msgspec may be imported here. Nothing in this
package performs input or output.
"""
