"""How our kinds are described: models, schemas, conversion, and Go's view of core types."""
