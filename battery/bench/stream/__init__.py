"""One streamed answer: bytes stamped as they leave the socket, then read as what a server says."""
