"""Methods for one holder that read the records several times, each with one budget in all."""
