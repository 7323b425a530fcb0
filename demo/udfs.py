"""The function of the demo: the country of a phone number.

TPC-H's phone numbers begin with a generated country code. The package `phonenumbers`, which has the
real ones, is installed only for this function; its sandbox has no network.
"""

import phonenumbers

import snowmelt as sm


@sm.udf(packages=["phonenumbers==8.13.*"])
def country(phone: str) -> str | None:
    """The region of the number's country code ("NL"), or None if the code does not exist."""
    try:
        number = phonenumbers.parse("+" + phone)
    except phonenumbers.NumberParseException:
        return None
    region = phonenumbers.region_code_for_country_code(number.country_code or 0)
    return None if region == "ZZ" else region
