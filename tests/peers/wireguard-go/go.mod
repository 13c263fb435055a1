// The newest wireguard-go at a pinned version: the peer that interop tests talk to and the one to beat in
// `trieste-bench lab`. The go line is the oldest Go that `./dev` accepts.
module trieste.example/peers/wireguard-go

go 1.26

tool golang.zx2c4.com/wireguard

require (
	golang.org/x/crypto v0.37.0 // indirect
	golang.org/x/net v0.39.0 // indirect
	golang.org/x/sys v0.32.0 // indirect
	golang.zx2c4.com/wintun v0.0.0-20230126152724-0fa3db229ce2 // indirect
	golang.zx2c4.com/wireguard v0.0.0-20260522210424-ecfc5a8d5446 // indirect
)
