"""The commands `privsketch study` and `privsketch collector`, registered by entry points."""
