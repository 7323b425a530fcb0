# A function to begin with: snowmelt fn deploy hello handler.py
def handler(event):
    return {"hello": event.get("name", "world")}
