"""The demo's own function: the country behind a phone number.

TPC-H's phone numbers begin with a made-up country code. The package `phonenumbers`, which knows
the real ones, is installed for this function alone; inside its sandbox there is no network.
"""

import phonenumbers

import snowmelt as sm


@sm.udf(packages=["phonenumbers==8.13.*"])
def country(phone: str) -> str | None:
    """The region that the number would ring in ("NL"), or None where no such code exists."""
    try:
        number = phonenumbers.parse("+" + phone)
    except phonenumbers.NumberParseException:
        return None
    region = phonenumbers.region_code_for_country_code(number.country_code or 0)
    return None if region == "ZZ" else region
