// Carries the precompiled header that every torch room reuses.
