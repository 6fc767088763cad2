"""From findings to a recipe: propose, try, prove."""
