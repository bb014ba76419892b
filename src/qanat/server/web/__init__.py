"""The web page at `/`: a chat and a live view of the server, of files that browsers read as they lie here."""
