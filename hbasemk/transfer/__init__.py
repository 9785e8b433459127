"""Import and export of directory trees and JSON."""
