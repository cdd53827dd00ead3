"""The ground of the engine: types, columns, schemas, trains and watermarks, errors and limits. It knows no other room."""
