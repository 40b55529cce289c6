"""The server that starts runs on boards, stores their results and shows them."""
