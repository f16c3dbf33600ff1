package chaintest
