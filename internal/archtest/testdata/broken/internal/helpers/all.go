package helpers
