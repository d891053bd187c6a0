"""The command line: pykruise …"""
