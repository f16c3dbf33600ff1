package service

// OwnedShards are the shards that this node owns; in mode basic, where none is owned, all.
func (s *Service) OwnedShards() []int {
	owned := make([]int, 0, len(s.shards))
	for i, sh := range s.shards {
		if s.basic != nil || sh.mine() {
			owned = append(owned, i)
		}
	}
	return owned
}
