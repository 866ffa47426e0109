"""From a recipe to results: data, global model, rates, tuning and comparison, each computed only once."""
