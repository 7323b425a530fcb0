-- The demo's own function: which countries do the customers' phones ring in?
select country(c_phone) as country, count(*) as customers, avg(c_acctbal) as balance
from customer
group by 1
order by customers desc, country
limit 10
