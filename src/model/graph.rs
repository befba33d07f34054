//! Volumes out of what the sources say: the block graph, the mount table and the kubelet's records joined. Pure.
