"""Commands of sealed studies: enrol, make and accept a study, seal, close, tally, join."""
