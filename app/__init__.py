"""pykruise: admission service, controllers and node agent that do OpenKruise's job."""
