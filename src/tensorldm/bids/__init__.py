"""The BIDS App: a dataset in, a derivative dataset out, participant by participant and then the group."""
