package service_test

func of(name string) func(owned) bool { return func(o owned) bool { return o.node == name } }

func lost(o owned) bool { return o.epoch > 0 }
