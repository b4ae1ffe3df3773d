"""Language models: chat and token seams, engines, endpoints, fakes."""
