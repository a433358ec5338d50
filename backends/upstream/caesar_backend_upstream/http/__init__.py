"""HTTP as this backend needs it: cancelled from any thread, bounded in time and size.

Built on requests and urllib3, which are imported when the backend is opened and not before.
"""
